# SPDX-License-Identifier: Apache-2.0
# The fuzz targets and the files that each begins with; read by test_corpus.sh and run-fuzz, which
# define "target NAME [--line READER] FILE...".  A file may be a folder of files.  $work is a folder
# for files that are made.
tests=$srcdir/tests
readers=$tests/fuzz/corpus/readers

for name in csv graph hello index machine options plan safetensors state; do
    target $name "$tests/fuzz/corpus/$name"
done

# 3,000 archives where others have 100 files each; a member is damaged in an archive that is whole.
seeds=$((10 * ${FUZZ_SEEDS:-100}))
target archive "$tests/fuzz/corpus/archive"
members=$tests/fuzz/corpus/archive-members
target archive --line program "$members/program.json"
target archive --line weights "$members/weights.json"
seeds=$((2 * ${FUZZ_SEEDS:-100}))
target archive --line program "$members/conv.json" "$members/pool.json" "$members/resize.json" "$members/shape.json" \
    "$members/unwritten.json" "$members/windows.json" "$members/writes.json"
seeds=

# What the programs read: --line names the reader.
lm=$tests/model/lm
target lm --line config "$lm/gpt2/config.json" "$lm/llama/config.json" "$lm/qwen2/config.json" "$lm/bert/config.json"
target lm --line vocabulary "$lm/pair/vocab.json"
target lm --line merges "$lm/pair/merges.txt"
target lm --line tokenizer "$lm/gpt2-tokenizer.json" "$lm/llama-tokenizer.json" "$tests/tokenizer/umt5.json" \
    "$tests/tokenizer/bert.json"
target template --line template "$tests"/model/chat/*.jinja
target template --line conversations "$tests/fuzz/corpus/conversations"
target lm --line words "$lm/bert/vocab.txt"
target lm --line tokens "$lm/gpt2-text.bin" "$lm/llama/tokens.bin"
target lm --line text "$lm/text.txt"

volume=$tests/volume
target volume --line nifti "$volume/four.nii" "$volume/swapped.nii"
target volume --line packed "$volume/oblique.nii.gz"
target volume --line meta "$volume/plain.mhd"
target volume --line tensor "$readers/volume.safetensors"
target volume --line csv "$volume/reference.csv"
target volume --line json "$readers/volumes.json" "$readers/volumes-label.json"

printf 'a.mp4\n  b.mp4 \n\nc d.mp4\n' >"$work/lines.txt"
printf '{"caption": "a dog", "text": "no"}' >"$work/caption.json"
printf 'RGBCLIP 4 2 3 8\n%072d' 0 >"$work/clip.rgb"
(cd "$work" && tar cf videos.tar lines.txt caption.json clip.rgb) || exit 1
target video --line transformer "$tests/cogvideo/5b/config.json" "$tests/cogvideo/15-i2v/config.json"
target video --line autoencoder "$readers/autoencoder.json"
target video --line scheduler "$readers/scheduler.json"
target video --line t5 "$tests/text/t5/config.json"
target video --line buckets "$readers/buckets.json"
target video --line table "$readers/table.csv"
target video --line latents "$readers/latents.safetensors"
target video --line lines "$work/lines.txt"
target video --line caption "$work/caption.json"
target video --line raw "$work/clip.rgb"
target video --line tar "$work/videos.tar"
