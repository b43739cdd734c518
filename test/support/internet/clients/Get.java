import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;

/** Prints the answer to a GET request: java Get URL. */
class Get {
    public static void main(String[] args) throws Exception {
        var client = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(20)).build();
        var request = HttpRequest.newBuilder(URI.create(args[0]));
        var key = System.getenv("API_KEY");
        if (key != null) request.header("authorization", "Bearer " + key);
        var response = client.send(request.build(), HttpResponse.BodyHandlers.ofString());
        System.out.println(response.version() + " " + response.statusCode() + " " + response.body());
    }
}
