//! OpenAPI v3 documents of the served group versions, with the extensions that kubectl reads.
