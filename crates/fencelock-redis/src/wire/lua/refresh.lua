-- A waiter's sign of life, and the confirm of a hand-over. It creates nothing (SAFETY A2).
-- ARGV: 1 keep, 2 hold, 3 ttl, 4 the end that it has seen, 5 how much is left until then by its clock,
-- 6 floor
least=tonumber(ARGV[6]) or 0
load()
seen,rest=tonumber(ARGV[4]),tonumber(ARGV[5])
settle()
return find(ARGV[2],tonumber(ARGV[3])) or {0,0,now}
