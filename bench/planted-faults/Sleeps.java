// A Java server with a pool of threads, each of which is asleep in a request: 4 for 5 ms, or with -Dmonitor=true 64 for 1 ms, one
// at a time with a monitor held.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

class Sleeps {
    static final boolean monitor = Boolean.getBoolean("monitor");

    static synchronized void alone() throws InterruptedException {
        Thread.sleep(1);
    }

    public static void main(String[] words) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("0.0.0.0", Integer.parseInt(words[0])), 4096);
        server.setExecutor(Executors.newFixedThreadPool(monitor ? 64 : 4));
        byte[] body = new byte[128];
        server.createContext("/", exchange -> {
            try {
                if (monitor) {
                    alone();
                } else {
                    Thread.sleep(5);
                }
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
