# A healthy Varnish that answers by itself: 1 KiB is made once, without a backend.
vcl 4.1;
backend none none;
sub vcl_recv { return (synth(200, "OK")); }
