"""What tenants brought: database, blobs, import jobs, and the stages that inspect and convert models in child
processes.
"""
