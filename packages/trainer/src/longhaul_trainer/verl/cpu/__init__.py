"""What verl and vLLM need besides their own code to train without an accelerator."""
