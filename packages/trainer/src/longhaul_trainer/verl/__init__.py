"""Everything that touches verl, vLLM or Ray. A process imports only the modules it uses."""
