// A Java server with a pool of four threads, each of which is asleep for 5 ms in a request.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

class Sleeps {
    public static void main(String[] words) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("0.0.0.0", Integer.parseInt(words[0])), 4096);
        server.setExecutor(Executors.newFixedThreadPool(4));
        byte[] body = new byte[128];
        server.createContext("/", exchange -> {
            try {
                Thread.sleep(5);
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
