# Keys, headers, nulls, partitions, every kind of acks and every way to choose where to start.
. "$FOREIGN/lib.sh"

new_topic kcat-records 3
is_taken() { kcat -b "$BOOTSTRAP" -Q -t kcat-records:1:-1 >end.txt && has end.txt 'offset 1$'; }
for acks in 0 1 all; do
  printf 'k%s:v%s\n' "$acks" "$acks" | kcat -b "$BOOTSTRAP" -P -t kcat-records -p 1 -K: -X acks=$acks
  # Nobody told that it has arrived: the next one, over another connection, could come before it.
  [ $acks != 0 ] || within 60 "what was sent with acks=0 arrives" is_taken
done
printf 'gone:\n' | kcat -b "$BOOTSTRAP" -P -t kcat-records -p 1 -K: -Z -H color=blue -H empty=
kcat -b "$BOOTSTRAP" -C -t kcat-records -p 1 -o beginning -e -q -Z -f '%p %o %k=%s %h\n' >got.txt
cat >wanted.txt <<'TEXT'
1 0 k0=v0 
1 1 k1=v1 
1 2 kall=vall 
1 3 gone=NULL color=blue,empty=
TEXT
check_same wanted.txt got.txt "keys, nulls and headers"

seq 1 100 | kcat -b "$BOOTSTRAP" -P -t kcat-records -p 2
take() { kcat -b "$BOOTSTRAP" -C -t kcat-records -p 2 -e -q "$@"; }
check_equal "$(seq 1 100)" "$(take -o beginning)" "from the beginning"
check_equal "$(seq 91 100)" "$(take -o -10)" "the last ten"
check_equal "$(seq 51 100)" "$(take -o 50)" "from an offset"
check_equal "$(seq 51 53)" "$(take -o 50 -c 3)" "three from an offset"
check_equal "" "$(take -o end)" "from the end"
check_equal "$(seq 1 100)" "$(take -o s@0)" "from a time before"
check_equal "" "$(take -o s@99999999999999)" "from a time after"
kcat -b "$BOOTSTRAP" -Q -t kcat-records:2:-1 -t kcat-records:2:-2 >offsets.txt
check_has offsets.txt 'kcat-records \[2\] offset (100|0)'

# An offset outside the log is an error that the client turns into a start at the other end.
check_equal "$(seq 1 100)" "$(take -o 5000 -X auto.offset.reset=earliest)" "beyond the end"

# A topic that is not there is made when a producer asks for it.
echo made | kcat -b "$BOOTSTRAP" -P -t kcat-made-by-asking
check_equal made "$(kcat -b "$BOOTSTRAP" -C -t kcat-made-by-asking -e -q)" "a topic made by asking"
