"""The demo: real networks of three tenants answer real pictures, sound and text, sent over HTTP by processes that stand for devices."""
