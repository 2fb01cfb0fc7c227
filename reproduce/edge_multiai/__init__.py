"""The experiments of Edge-MultiAI: five tenants in little memory."""
