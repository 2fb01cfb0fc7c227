"""Notifications: who is told of conditions, of which, and in which form. Nothing is sent here."""
