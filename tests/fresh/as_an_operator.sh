#!/usr/bin/env bash
# Within the minimal root: sets the server up as deploy/ says, and fails on what an operator would stumble over.
set -euo pipefail
fail() {
  echo "FAILED: $*" >&2
  [ ! -e /tmp/server.log ] || sed 's/^/server: /' /tmp/server.log >&2
  exit 1
}
# eventually <seconds> <what> <command>...
eventually() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || fail "never: $what"
    sleep 0.1
  done
}

# ---- what stands in deploy/ is well-formed ------------------------------------------------------------------------------------------
cd /opt/deploy/monitoring
promtool check config prometheus.yml >/dev/null || fail "prometheus.yml"
promtool check rules rules.yml >/dev/null || fail "rules.yml"
promtool test rules rules_test.yml >/dev/null || fail "rules_test.yml"
jq -r '.panels[].targets[]?.expr' grafana-dashboard.json >/tmp/expressions
[ "$(wc -l </tmp/expressions)" -gt 20 ] || fail "the dashboard asks for next to nothing"
{
  echo 'groups: [{name: dashboard, rules: ['
  sed -e 's/\$instance/.*/; s/\\/\\\\/g; s/"/\\"/g; s/.*/{record: "a:b", expr: "&"},/' /tmp/expressions
  echo ']}]'
} >/tmp/dashboard.yml
promtool check rules /tmp/dashboard.yml >/tmp/promtool.log 2>&1 || { cat /tmp/promtool.log >&2; fail "an expression of the dashboard"; }
unit=/opt/deploy/systemd/stagecoach-serve@.service
systemd-analyze verify "$unit" >/tmp/verify.log 2>&1 || { cat /tmp/verify.log >&2; fail "the systemd unit"; }
[ ! -s /tmp/verify.log ] || { cat /tmp/verify.log >&2; fail "the systemd unit has warnings"; }

# ---- the unit's command, as systemd would run it --------------------------------------------------------------------------------------
mkdir -p /run/credentials
echo 'operator:sk-of-the-operator' >/run/credentials/keys
export MODEL=/srv/models/demo.gguf OPTIONS='--pp 2 --chat-template chatml --port 8080 --max-num-seqs 4'
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
command=$(sed -n 's/^ExecStart=//p' "$unit" | sed 's,%d,/run/credentials,')
eval "exec $command" 2>/tmp/server.log &
server=$!
ready() { curl -sf http://127.0.0.1:8080/health >/dev/null; }
eventually 60 "the server is ready" ready

# ---- nginx in front of it --------------------------------------------------------------------------------------------------------------
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=llm.example.org -addext subjectAltName=DNS:llm.example.org \
  -keyout /etc/ssl/private/stagecoach.key -out /etc/ssl/certs/stagecoach.pem 2>/dev/null
rm -f /etc/nginx/sites-enabled/default
cp /opt/deploy/nginx/stagecoach.conf /etc/nginx/conf.d/
nginx -t 2>/tmp/nginx.log || { cat /tmp/nginx.log >&2; fail "nginx does not take the snippet"; }
nginx
ask() { # <path> <curl's options>...
  curl -sS --cacert /etc/ssl/certs/stagecoach.pem --resolve llm.example.org:443:127.0.0.1 "${@:2}" "https://llm.example.org$1"
}
key=(-H 'Authorization: Bearer sk-of-the-operator' -H 'Content-Type: application/json')
body='{"messages": [{"role": "user", "content": "In the beginning"}], "max_tokens": 32, "seed": 5, "temperature": 0.7}'

[ "$(ask /v1/models -o /tmp/models -w '%{http_code}')" = 401 ] || fail "the models are shown without a key"
ask /v1/models "${key[@]}" | jq -e '.data | length == 1' >/dev/null || fail "the list of models"
whole=$(ask /v1/chat/completions "${key[@]}" -d "$body" | jq -r .choices[0].message.content)
[ -n "$whole" ] || fail "an empty answer"
ask /v1/chat/completions "${key[@]}" -N -d "${body%\}}, \"stream\": true}" >/tmp/stream
[ "$(tail -n 2 /tmp/stream | head -n 1)" = 'data: [DONE]' ] || fail "a stream without its end: $(tail -n 3 /tmp/stream)"
streamed=$(sed -n 's/^data: //p' /tmp/stream | grep -v '^\[DONE\]' | jq -rj '.choices[0].delta.content')
[ "$streamed" = "$whole" ] || fail "the stream said '$streamed', the whole answer '$whole'"

[ "$(ask /v1/chat/completions "${key[@]}" -d '{' -o /tmp/refused -w '%{http_code}')" = 400 ] || fail "half a body is taken"
# What operators read is not for those who come from elsewhere: here, from another address than the proxy's own.
for path in /metrics /api/cluster /api/cluster/events; do
  [ "$(ask "$path" "${key[@]}" --interface 127.0.0.2 -o /tmp/refused -w '%{http_code}')" = 403 ] || fail "$path is shown to everybody"
done
ask /api/cluster "${key[@]}" | jq -e '.state == "ready"' >/dev/null || fail "the state of the cluster, for the operator"

# A client that goes: its place is free again, through the proxy too.
endless='{"messages": [{"role": "user", "content": "In the beginning"}], "max_tokens": 900, "ignore_eos": true, "stream": true}'
ask /v1/chat/completions "${key[@]}" -N --max-time 0.3 -d "$endless" >/dev/null 2>&1 || true
metrics() { curl -sf http://127.0.0.1:8080/metrics; }
idle() { metrics | grep -q '^stagecoach_requests_running 0$'; }
eventually 10 "the request of a client that went is cancelled" idle

# ---- what Prometheus reads -------------------------------------------------------------------------------------------------------------
metrics >/tmp/metrics
promtool check metrics </tmp/metrics >/tmp/promtool.log 2>&1 || { cat /tmp/promtool.log >&2; fail "promtool has something to say of /metrics"; }
[ ! -s /tmp/promtool.log ] || { cat /tmp/promtool.log >&2; fail "promtool has something to say of /metrics"; }
{ cat /tmp/expressions rules.yml; jq -r '.templating.list[].query, .annotations.list[].expr' grafana-dashboard.json; } |
  grep -oE '\bstagecoach_[a-z0-9_]+' | sort -u >/tmp/asked
grep -oE '^# TYPE stagecoach_[a-z0-9_]+ (histogram|counter|gauge)' /tmp/metrics | while read -r _ _ name kind; do
  echo "$name"
  [ "$kind" != histogram ] || printf '%s\n' "${name}_bucket" "${name}_sum" "${name}_count"
done | sort -u >/tmp/there
missing=$(grep -vE '^stagecoach_(rates|alerts)$' /tmp/asked | comm -23 - /tmp/there)
[ -z "$missing" ] || fail "the rules or the dashboard ask for what /metrics has not: $missing"
sed -n 's/^ *- record: //p' rules.yml | sort -u >/tmp/recorded
missing=$(grep -oE '\bstagecoach:[a-z0-9_:]+' /tmp/expressions | sort -u | comm -23 - /tmp/recorded)
[ -z "$missing" ] || fail "the dashboard asks for what rules.yml does not record: $missing"
# Labels: those that Prometheus adds, and le, aside.
{ cat /tmp/expressions rules.yml; } | grep -oE '\b(by|on|without) \([a-z_, ]+\)|\{\{ ?\$labels\.[a-z_]+|[{,] ?[a-z_]+(=|=~|!=|!~)"' |
  sed -E 's/^(by|on|without)//; s/\$labels\.//' | grep -oE '[a-z_]+' | sort -u | grep -vxE 'instance|job|le' >/tmp/asked_labels
grep -oE '[{,][a-z_]+="' /tmp/metrics | grep -oE '[a-z_]+' | sort -u >/tmp/labels
missing=$(comm -23 /tmp/asked_labels /tmp/labels)
[ -z "$missing" ] || fail "the rules or the dashboard ask for labels that /metrics has not: $missing"
[ -s /tmp/asked_labels ] || fail "no label was found to look for"

# ---- the end ---------------------------------------------------------------------------------------------------------------------------
kill -TERM "$server"
code=0
wait "$server" || code=$?
[ "$code" -eq 0 ] || fail "drained with exit code $code"
nginx -s quit
echo "served: $(wc -l </tmp/there) names of metrics, $(wc -l </tmp/expressions) expressions of the dashboard"
