"""Metrics: measurements that the trainer wrote at each training step."""
