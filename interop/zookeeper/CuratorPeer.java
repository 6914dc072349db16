// A contender from another library: Apache Curator's recipes behind one line in, one line out.
//
//   CuratorPeer CONNECT_STRING SESSION_TIMEOUT_MS [digest USER:PASSWORD]
//
// `ready` once connected, then one answer to each line, in turn; the end of the input is `quit`.
//
//   acquire KIND PATH MILLIS [PERMITS/MAX]       ok HANDLE NODE | busy | error TEXT
//   rounds KIND PATH N FILE [PERMITS/MAX]        ok N MICROS | error TEXT
//   leader PATH ID, latch PATH ID                ok HANDLE NODE | busy | error TEXT
//   release HANDLE                               ok | error TEXT
//   handoff PATH CLIENTS HOLDS                   ok P50_MICROS P99_MICROS, warm, of clients of their own in this process
//   participants KIND PATH                       ok A|B|C, in the order of the queue for the locks
//   revoke NODE_PATH, state, quit                ok | ok STATE | ok
//
// KIND is mutex, semaphore-mutex, read, write, permits, leader or multi (PATH is A,B,C); `participants` knows latch
// too, but not multi. Readers of `rounds` only look whether the number stays.
// NODE is a path, several with commas for several nodes, `-` for a leader. Nothing is left behind by `busy`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;

public final class CuratorPeer {
    private static final long LONGEST_MS = 60_000;

    /** What can be had and let go. Both are called on one thread: to Curator the thread is the owner. */
    private interface Claim {
        /** The node; null if it was not got in time. */
        String acquire(long millis) throws Exception;

        void release() throws Exception;
    }

    private record Held(Claim claim, ExecutorService thread) {}

    private final String[] args;
    private final CuratorFramework client;
    private final Map<String, Held> held = new HashMap<>();
    private volatile ConnectionState state;
    private int handles;

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        CuratorPeer peer = new CuratorPeer(args);
        if (!peer.client.blockUntilConnected((int) LONGEST_MS, TimeUnit.MILLISECONDS)) {
            out.println("error not connected");
            System.exit(1);
        }
        out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null && !line.equals("quit")) out.println(peer.answer(line.split(" ")));
        peer.client.close();
        if (line != null) out.println("ok");
        System.exit(0); // Threads of handles are still there.
    }

    private CuratorPeer(String[] args) {
        this.args = args;
        client = connect(args);
        client.getConnectionStateListenable().addListener((ignored, now) -> state = now);
        client.start();
    }

    private static CuratorFramework connect(String[] args) {
        int timeout = Integer.parseInt(args[1]);
        CuratorFrameworkFactory.Builder builder = CuratorFrameworkFactory.builder()
                .connectString(args[0])
                .sessionTimeoutMs(timeout)
                .connectionTimeoutMs(Math.min(timeout, 15_000))
                .retryPolicy(new ExponentialBackoffRetry(100, 5))
                // Would replace the connect string by what the ensemble says of itself, and so go round a proxy.
                .ensembleTracker(false);
        if (args.length > 2) {
            builder.authorization(args[2], args[3].getBytes(StandardCharsets.UTF_8)).aclProvider(new ACLProvider() {
                @Override
                public List<ACL> getDefaultAcl() {
                    return ZooDefs.Ids.CREATOR_ALL_ACL;
                }

                @Override
                public List<ACL> getAclForPath(String path) {
                    return ZooDefs.Ids.CREATOR_ALL_ACL;
                }
            });
        }
        return builder.build();
    }

    private String answer(String[] words) {
        try {
            return switch (words[0]) {
                case "acquire" -> acquire(claim(words[1], words[2], word(words, 4)), Long.parseLong(words[3]));
                case "rounds" -> rounds(words);
                case "leader" -> acquire(new Leader(words[1], words[2]), LONGEST_MS);
                case "latch" -> acquire(new Latch(words[1], words[2]), LONGEST_MS);
                case "release" -> release(words[1]);
                case "handoff" -> handoff(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
                case "participants" -> ("ok " + String.join("|", participants(words[1], words[2])).replace('\n', ' ')).strip();
                case "revoke" -> {
                    Revoker.attemptRevoke(client, words[1]);
                    yield "ok";
                }
                case "state" -> "ok " + state;
                default -> "error unknown command " + words[0];
            };
        } catch (Throwable thrown) {
            Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
            return "error " + cause.toString().replaceAll("\\s+", " ");
        }
    }

    private static String word(String[] words, int at) {
        return at < words.length ? words[at] : null;
    }

    private static ExecutorService newThread() {
        return Executors.newSingleThreadExecutor();
    }

    private String acquire(Claim claim, long millis) throws Exception {
        ExecutorService thread = newThread();
        String node = null;
        try {
            node = thread.submit(() -> claim.acquire(millis)).get();
        } finally {
            if (node == null) thread.shutdown();
        }
        if (node == null) return "busy";
        String handle = "h" + ++handles;
        held.put(handle, new Held(claim, thread));
        return "ok " + handle + " " + node;
    }

    private String release(String handle) throws Exception {
        Held was = held.remove(handle);
        if (was == null) return "error no handle " + handle;
        Callable<Void> release = () -> {
            was.claim.release();
            return null;
        };
        try {
            was.thread.submit(release).get();
        } finally {
            was.thread.shutdown();
        }
        return "ok";
    }

    /** rounds KIND PATH N FILE [PERMITS/MAX]: the counter is exact only if nobody else was inside. */
    private String rounds(String[] words) throws Exception {
        String kind = words[1];
        int rounds = Integer.parseInt(words[3]);
        Path file = Path.of(words[4]);
        ExecutorService thread = newThread();
        try {
            return thread.submit(() -> {
                long start = System.nanoTime();
                for (int round = 0; round < rounds; round++) {
                    Claim claim = claim(kind, words[2], word(words, 5)); // A selector leads once.
                    if (claim.acquire(LONGEST_MS) == null) return "error not got in time in round " + round;
                    try {
                        long before = number(file);
                        LockSupport.parkNanos(200_000);
                        if (!kind.equals("read")) {
                            Files.writeString(file, Long.toString(before + 1));
                        } else if (number(file) != before) { // Readers are together, so they only look.
                            return "error a writer was inside in round " + round;
                        }
                    } finally {
                        claim.release();
                    }
                }
                return "ok " + rounds + " " + (System.nanoTime() - start) / 1000;
            }).get();
        } finally {
            thread.shutdown();
        }
    }

    /** From the call of release until another one has the lock, of those who waited meanwhile. Each holds for 20 to 40 ms. */
    private String handoff(String path, int clients, int holds) throws Exception {
        List<CuratorFramework> all = new ArrayList<>();
        try {
            for (int n = 0; n < clients; n++) {
                all.add(connect(args));
                all.get(n).start();
                all.get(n).blockUntilConnected();
            }
            contend(all, path, holds); // Until it is warm.
            List<long[]> spans = contend(all, path, holds);
            spans.sort((a, b) -> Long.compare(a[1], b[1]));
            List<Long> times = new ArrayList<>();
            for (int n = 1; n < spans.size(); n++) {
                long released = spans.get(n - 1)[2];
                if (spans.get(n)[0] < released) times.add(spans.get(n)[1] - released);
            }
            times.sort(null);
            return "ok " + times.get(times.size() / 2) / 1000 + " " + times.get(times.size() * 99 / 100) / 1000;
        } finally {
            all.forEach(CuratorFramework::close);
        }
    }

    /** When each was asked for, got and given back. */
    private static List<long[]> contend(List<CuratorFramework> all, String path, int holds) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(all.size());
        try {
            List<Callable<List<long[]>>> work = new ArrayList<>();
            for (CuratorFramework each : all) {
                work.add(() -> {
                    InterProcessMutex lock = new InterProcessMutex(each, path);
                    List<long[]> spans = new ArrayList<>();
                    for (int n = 0; n < holds / all.size(); n++) {
                        long asked = System.nanoTime();
                        lock.acquire();
                        long got = System.nanoTime();
                        Thread.sleep(ThreadLocalRandom.current().nextInt(20, 40));
                        spans.add(new long[] {asked, got, System.nanoTime()});
                        lock.release();
                    }
                    return spans;
                });
            }
            List<long[]> spans = new ArrayList<>();
            for (var done : threads.invokeAll(work)) spans.addAll(done.get());
            return spans;
        } finally {
            threads.shutdown();
        }
    }

    private static long number(Path file) throws Exception {
        return Long.parseLong(Files.readString(file).strip());
    }

    private Claim claim(String kind, String path, String permits) {
        return switch (kind) {
            case "mutex" -> of(new InterProcessMutex(client, path));
            case "semaphore-mutex" -> {
                InterProcessSemaphoreMutex lock = new InterProcessSemaphoreMutex(client, path);
                yield of(lock, () -> path + "/leases/" + lease(lock).getNodeName());
            }
            case "read" -> of(new InterProcessReadWriteLock(client, path).readLock());
            case "write" -> of(new InterProcessReadWriteLock(client, path).writeLock());
            case "permits" -> new Permits(path, permits);
            case "leader" -> new Leader(path, "theirs");
            case "multi" -> {
                List<InterProcessLock> locks = new ArrayList<>();
                for (String each : path.split(",")) locks.add(new InterProcessMutex(client, each));
                InterProcessMultiLock all = new InterProcessMultiLock(locks);
                yield of(all, () -> locks.stream().map(CuratorPeer::node).collect(Collectors.joining(",")));
            }
            default -> throw new IllegalArgumentException("unknown kind " + kind);
        };
    }

    private static Claim of(InterProcessLock lock) {
        return of(lock, () -> node(lock));
    }

    private static Claim of(InterProcessLock lock, Callable<String> node) {
        return new Claim() {
            @Override
            public String acquire(long millis) throws Exception {
                return lock.acquire(millis, TimeUnit.MILLISECONDS) ? node.call() : null;
            }

            @Override
            public void release() throws Exception {
                lock.release();
            }
        };
    }

    /** The node of a lock that this thread holds, which Curator keeps to itself. */
    private static String node(InterProcessLock lock) {
        try {
            Method path = InterProcessMutex.class.getDeclaredMethod("getLockPath");
            path.setAccessible(true);
            return (String) path.invoke(lock);
        } catch (ReflectiveOperationException other) {
            throw new IllegalStateException(other);
        }
    }

    private static Lease lease(InterProcessSemaphoreMutex lock) throws ReflectiveOperationException {
        Field lease = InterProcessSemaphoreMutex.class.getDeclaredField("lease");
        lease.setAccessible(true);
        return (Lease) lease.get(lock);
    }

    private final class Permits implements Claim {
        private final InterProcessSemaphoreV2 semaphore;
        private final String path;
        private final int permits;
        private Collection<Lease> leases;

        Permits(String path, String permits) {
            String[] of = permits == null ? new String[0] : permits.split("/");
            if (of.length != 2) throw new IllegalArgumentException("PERMITS/MAX is missing");
            this.path = path;
            this.permits = Integer.parseInt(of[0]);
            semaphore = new InterProcessSemaphoreV2(client, path, Integer.parseInt(of[1]));
        }

        @Override
        public String acquire(long millis) throws Exception {
            leases = semaphore.acquire(permits, millis, TimeUnit.MILLISECONDS);
            if (leases == null) return null;
            String parent = path + "/leases/";
            return leases.stream().map(lease -> parent + lease.getNodeName()).collect(Collectors.joining(","));
        }

        @Override
        public void release() {
            semaphore.returnAll(leases);
        }
    }

    private final class Leader extends LeaderSelectorListenerAdapter implements Claim {
        private final ExecutorService thread = newThread();
        private final CountDownLatch leads = new CountDownLatch(1);
        private final CountDownLatch enough = new CountDownLatch(1);
        private final LeaderSelector selector;
        private volatile boolean lost;

        Leader(String path, String id) {
            selector = new LeaderSelector(client, path, thread, this);
            selector.setId(id);
        }

        @Override
        public void takeLeadership(CuratorFramework ignored) {
            leads.countDown();
            try {
                enough.await();
            } catch (InterruptedException cancelled) { // The adapter cancels leadership on SUSPENDED and LOST.
                lost = true;
            }
        }

        @Override
        public String acquire(long millis) throws Exception {
            selector.start();
            if (leads.await(millis, TimeUnit.MILLISECONDS)) return "-";
            selector.close();
            end();
            return null;
        }

        @Override
        public void release() throws Exception {
            enough.countDown();
            end(); // Before close(), which would interrupt the deletion of the node.
            selector.close();
            if (lost) throw new IllegalStateException("leadership was lost");
        }

        private void end() throws InterruptedException {
            thread.shutdown();
            if (!thread.awaitTermination(LONGEST_MS, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("still in the queue");
            }
        }
    }

    private final class Latch implements Claim {
        private final String path;
        private final LeaderLatch latch;
        private String node;

        Latch(String path, String id) {
            this.path = path;
            latch = new LeaderLatch(client, path, id);
        }

        @Override
        public String acquire(long millis) throws Exception {
            latch.start();
            if (latch.await(millis, TimeUnit.MILLISECONDS)) return node = latch.getOurPath();
            close();
            return null;
        }

        @Override
        public void release() throws Exception {
            // It queues again by itself after a loss, and may lead again.
            boolean led = latch.hasLeadership() && node.equals(latch.getOurPath());
            close();
            if (!led) throw new IllegalStateException("leadership was lost");
        }

        /** close() deletes in the background; what is asked behind it is answered after it. */
        private void close() throws Exception {
            latch.close();
            client.checkExists().forPath(path);
        }
    }

    private Collection<String> participants(String kind, String path) throws Exception {
        try {
            return switch (kind) {
                case "mutex" -> names(new InterProcessMutex(client, path).getParticipantNodes());
                case "read" -> names(new InterProcessReadWriteLock(client, path).readLock().getParticipantNodes());
                case "write" -> names(new InterProcessReadWriteLock(client, path).writeLock().getParticipantNodes());
                case "semaphore-mutex", "permits" -> // The one is the other with one permit.
                        names(new InterProcessSemaphoreV2(client, path, 1).getParticipantNodes());
                case "leader" -> ids(new Leader(path, "").selector.getParticipants());
                case "latch" -> ids(new LeaderLatch(client, path).getParticipants());
                default -> throw new IllegalArgumentException("no participants of " + kind);
            };
        } catch (KeeperException.NoNodeException nobody) {
            return List.of();
        }
    }

    private static List<String> names(Collection<String> paths) {
        return paths.stream().map(path -> path.substring(path.lastIndexOf('/') + 1)).toList();
    }

    private static List<String> ids(Collection<Participant> participants) {
        return participants.stream().map(Participant::getId).toList();
    }
}
