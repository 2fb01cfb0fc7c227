"""Scrooge's experiments (SoCC 2021, §4) on an emulated cluster: planners for pipelines under equal conditions."""
