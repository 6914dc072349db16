-- It makes no record and changes none. ARGV: 1 keep
local v=redis.call('HMGET',K,'k','e','v','o','n','q')
if v[1] and v[1]~='cell' and (v[4] or (v[5] or '0')~='0' or (v[6] or '0')~='0') then
  load()
  settle()
  promote()
  if is_live() then return {4,s.k,now} end
end
return {8,tonumber(v[2]) or 0,now,0,v[3]}
