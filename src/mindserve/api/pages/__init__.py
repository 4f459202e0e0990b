"""The pages for a browser (reading H11): a playground at ``/`` and the contract for reading at ``/docs``."""
