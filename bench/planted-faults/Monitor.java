// A Java server with a pool of 64 threads, one of which at a time is asleep for 1 ms with a monitor held.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

class Monitor {
    static synchronized void step() throws InterruptedException {
        Thread.sleep(1);
    }

    public static void main(String[] words) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("0.0.0.0", Integer.parseInt(words[0])), 4096);
        server.setExecutor(Executors.newFixedThreadPool(64));
        byte[] body = new byte[128];
        server.createContext("/", exchange -> {
            try {
                step();
            } catch (InterruptedException stopped) {
                return;
            }
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
