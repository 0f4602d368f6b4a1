-- Sets one key if it holds what is expected, and says what vouches for that.
-- KEYS: the key, the generation key. ARGV: what is expected and what is set ('' = no key), and for
-- how many milliseconds ('0' = for ever).
local held = redis.call('GET', KEYS[1]) or ''
local same = held == ARGV[1]
if same then
  if ARGV[2] == '' then
    redis.call('DEL', KEYS[1])
  elseif ARGV[3] == '0' then
    redis.call('SET', KEYS[1], ARGV[2])
  else
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  end
  held = ''
end
local stats, said = redis.call('INFO', 'stats'), redis.call('INFO', 'replication')
local evicted, copied = string.match(stats, 'evicted_keys:%d+'), string.match(stats, 'sync_full:%d+')
said = said .. evicted .. '\n' .. copied
return { same and 1 or 0, held, redis.call('GET', KEYS[2]), said }
