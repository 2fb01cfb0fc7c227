"""Notifications: messages to receivers outside of the box, sent so that no receiver holds anything up."""
