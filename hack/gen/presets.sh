#!/bin/sh
# Lists the presets, the files of webhookserver/mapping/presets, in the marker of spec.preset, so that the API server rejects
# other names.
set -eu
cd "$(dirname "$0")/../.."
names=$(ls webhookserver/mapping/presets | sed -n 's/^\([^.]*\)\.yaml$/\1/p' | LC_ALL=C sort | paste -sd';' -)
types=api/v1alpha1/webhookintegration_types.go
sed 's/\(Enum=auto;none;\).*/\1'"$names/" "$types" >"$types.tmp"
cat "$types.tmp" >"$types"
rm "$types.tmp"
