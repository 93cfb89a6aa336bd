"""AgentGym: any of its environment servers, by address."""
