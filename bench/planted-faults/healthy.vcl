# A healthy Varnish that answers by itself: it makes 1 KiB once, without a backend.
vcl 4.1;
backend none none;
sub vcl_recv { return (synth(200, "OK")); }
