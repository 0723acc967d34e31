# needs: JoinGroup
# A group reads a topic and remembers how far it came.
. "$FOREIGN/lib.sh"

new_topic kcat-group 2
seq 1 10 | kcat -b "$BOOTSTRAP" -P -t kcat-group
check_equal "$(seq 1 10)" "$(kcat -b "$BOOTSTRAP" -e -q -o beginning -G kcat-group kcat-group | sort -n)" "first reading"
