"""Receivers of notifications, the conditions that each is told of, and the form of messages. Nothing is sent here."""
