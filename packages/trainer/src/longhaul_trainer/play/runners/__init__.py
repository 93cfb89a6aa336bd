"""Programs that play a run's episodes on other machines: leases over HTTP, and the runner."""
