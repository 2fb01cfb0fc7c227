"""Problems of the project: small ones as files, families of them as seeded generators."""
