// A Java server that makes 512 KiB of garbage for each request and keeps some of it, to be run with a small heap.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

class Garbage {
    static final Object[] kept = new Object[320];

    public static void main(String[] words) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("0.0.0.0", Integer.parseInt(words[0])), 4096);
        server.setExecutor(Executors.newFixedThreadPool(8));
        byte[] body = new byte[128];
        int[] next = {0};
        server.createContext("/", exchange -> {
            for (int i = 0; i < 16; i++) {
                byte[] part = new byte[32 << 10];
                synchronized (kept) {
                    kept[next[0]++ % kept.length] = part;
                }
            }
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
