#!/usr/bin/env bash
# An agent in another language: three calls with curl, and a line of JSON with what they were worth.
# It is asked for the way to the treasure, and each reply that names one scores a third.
set -euo pipefail

# The task is a line of JSON: {"start": [0, 1], "treasure": [2, 1]}
read -r -d '' task < "${LONGHAUL_TASK_FILE:-/dev/stdin}" || true
IFS=' ' read -r x y to_x to_y <<< "$(grep -oE '[0-9]+' <<< "$task" | head -4 | tr '\n' ' ')"
right=''
(( to_x > x )) && right+='right '
(( to_x < x )) && right+='left '
(( to_y > y )) && right+='down '
(( to_y < y )) && right+='up '

good=0
for attempt in 1 2 3; do
    body=$(printf '{"model": "%s", "max_tokens": 16, "messages": [{"role": "user", "content": "%s"}]}' \
        "${MODEL:-auto}" \
        "Attempt $attempt. You are on square $x,$y and the treasure is on $to_x,$to_y. Which way?")
    reply=$(curl --silent --show-error --fail-with-body "$OPENAI_BASE_URL/chat/completions" \
        --header "Authorization: Bearer $OPENAI_API_KEY" \
        --header 'Content-Type: application/json' --data "$body")
    for way in $right; do
        if grep -q "$way" <<< "$reply"; then
            good=$((good + 1))
            break
        fi
    done
done
echo "{\"reward\": $(printf '0.%02d' $((good * 33))), \"success\": $([ "$good" -eq 3 ] && echo true || echo false)}"
