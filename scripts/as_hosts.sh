#!/usr/bin/env bash
# Runs a command on several hosts that are network namespaces of this machine, joined by a bridge:
#
#   scripts/as_hosts.sh HOSTS RANKS_PER_HOST COMMAND...
#
# is `mpirun -n HOSTS*RANKS_PER_HOST COMMAND` over HOSTS hosts. Needs root. Exit code 77: this system
# does not allow namespaces, or mpirun cannot start ranks in them; else that of mpirun.
set -euo pipefail
if [ $# -lt 3 ]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
hosts=$1 per_host=$2
shift 2
name=belay$$ # a bridge's name has at most 15 characters
net=10.$((RANDOM % 200 + 20)).$((RANDOM % 250))
work=$(mktemp -d)

clean_up() {
  for ((i = 0; i < hosts; i++)); do ip netns del "$name-$i" 2>/dev/null || true; done
  ip link del "$name" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT

list=()
make_hosts() {
  local i
  command -v ip >/dev/null && unshare -n -u true && ip link add "$name" type bridge &&
    ip addr add "$net.254/24" dev "$name" && ip link set "$name" up || return 1
  for ((i = 0; i < hosts; i++)); do
    ip netns add "$name-$i" &&
      ip link add "v$i-$$" type veth peer name eth0 netns "$name-$i" &&
      ip link set "v$i-$$" master "$name" up &&
      ip -n "$name-$i" addr add "$net.$((i + 1))/24" dev eth0 &&
      ip -n "$name-$i" link set eth0 up && ip -n "$name-$i" link set lo up || return 1
    list+=("$net.$((i + 1)):$per_host")
  done
}

if ! make_hosts; then
  echo "as_hosts: network namespaces are not allowed here (they need root and ip)" >&2
  exit 77
fi

# What mpirun takes for ssh: the first argument is the address of a host.
cat >"$work/agent" <<AGENT
#!/usr/bin/env bash
host=\$((\${1##*.} - 1))
shift
exec ip netns exec $name-\$host unshare -u bash -c "hostname belay-host-\$host; \$*"
AGENT
chmod +x "$work/agent"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
launch=(mpirun --mca plm_rsh_agent "$work/agent" --mca oob_tcp_if_include "$net.0/24"
  --mca btl_tcp_if_include "$net.0/24" --mca btl "tcp,self,vader" --mca plm_rsh_no_tree_spawn 1
  --bind-to none --oversubscribe --host "$(IFS=, && echo "${list[*]}")"
  -n $((hosts * per_host)))
if ! timeout -k 5 30 "${launch[@]}" true >&2; then
  echo "as_hosts: mpirun cannot start ranks in namespaces here" >&2
  exit 77
fi
status=0
"${launch[@]}" "$@" || status=$?
exit "$status"
