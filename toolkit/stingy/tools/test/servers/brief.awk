# The stages and edges of memwalk's report, and for its other parts the number of lines: what is kept of large servers.
BEGIN { RS = ""; FS = "\n" }
NR == 1 {
	for (i = 1; i <= NF; i++) {
		stages = split($i, unused, ", ")
		if (i > 1 && stages > 6) sub(/-> .*/, "-> " stages " stages", $i)
		print $i
	}
	next
}
{
	lines = 0
	for (i = 2; i <= NF; i++) lines += $i ~ /^  [^ ]/
	print $1 ": " lines
}
