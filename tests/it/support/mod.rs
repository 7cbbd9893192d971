mod redis_server;
pub(crate) use redis_server::RedisServer;
