//! sql.md 12.7: DynamoDB lock client.
use super::prelude::*;

cases! {}
roles! {}
