import java.util.Scanner;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Lock + unlock with Redisson, as its own documentation does it: a key for each thread, and its watchdog renews the lease.
 *
 * <p>Arguments: the port of a Redis server, and the number of threads. For each line with a number of milliseconds it works for so long, and
 * prints how many pairs it did in a second.
 */
class Main {
    public static void main(String[] args) {
        var config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + args[0]);
        var client = Redisson.create(config);
        int threads = Integer.parseInt(args[1]);
        var pool = Executors.newFixedThreadPool(threads);
        // The compiler of the JVM has done its work before anything is measured.
        work(client, pool, threads, 3000);
        for (var lines = new Scanner(System.in); lines.hasNextInt(); ) {
            System.out.println(work(client, pool, threads, lines.nextInt()));
        }
        pool.shutdown();
        client.shutdown();
    }

    private static double work(RedissonClient client, ExecutorService pool, int threads, int millis) {
        long begin = System.nanoTime();
        long end = begin + millis * 1_000_000L;
        var all = IntStream.range(0, threads)
            .mapToObj(n -> CompletableFuture.supplyAsync(() -> pairs(client, n, end), pool))
            .toList();
        long pairs = all.stream().mapToLong(CompletableFuture::join).sum();
        return pairs * 1e9 / (System.nanoTime() - begin);
    }

    private static long pairs(RedissonClient client, int n, long end) {
        var lock = client.getLock("redisson-" + n);
        long pairs = 0;
        for (; System.nanoTime() < end; pairs++) {
            lock.lock();
            lock.unlock();
        }
        return pairs;
    }
}
