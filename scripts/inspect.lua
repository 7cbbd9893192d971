#!lua flags=no-writes
-- Tells who holds a key and how many wait, for people and logs.
--
-- KEYS  1 lock key, 2 queue
-- Reply {holder or nil, pttl, waiting}
--       error CONFLICT            a key is of another type

-- #include look
return {holder, remaining, waiting}
