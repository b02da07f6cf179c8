#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Odd videos, made here by ffmpeg: every frame equals the frame that ffmpeg shows, and the number of
# frames that the header announces, if any, is the number of frames shown.  FRAMES is the program
# frames, KEEP a folder to make the clips in and keep.
command -v ffmpeg >/dev/null || { echo "skipped: there is no ffmpeg"; exit 77; }
frames=${FRAMES:-./tests/video/frames}
if $frames /dev/null 2>&1 | grep -q "without FFmpeg"; then
    echo "skipped: built without FFmpeg's libraries"
    exit 77
fi
if [ "$KEEP" ]; then t=$KEEP; mkdir -p "$t"; else t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT; fi
bad=0
total=0
skipped=0

ff() {
    ffmpeg -nostdin -v error -threads 1 -y "$@" 2>>"$t/log"
}

# One clip: NAME and the arguments of ffmpeg behind "-i test pattern".  ffmpeg without the encoder
# makes none.
src="testsrc2=size=64x48:rate=24:duration=2"
make() {
    name=$1
    shift
    [ -s "$t/$name" ] || ff -f lavfi -i "$src" "$@" "$t/$name" || { rm -f "$t/$name"; skipped=$((skipped + 1)); }
}
cut() { # NAME FROM args before -i ... -- args after
    name=$1 from=$2
    shift 2
    [ -s "$t/$name" ] || [ ! -s "$t/$from" ] || ff "$@" "$t/$name" || rm -f "$t/$name"
}
copy() { # NAME FROM SECONDS LENGTH
    cut "$1" "$2" -ss "$3" -i "$t/$2" -t "$4" -c copy
}

x264="-c:v libx264 -preset fast -pix_fmt yuv420p -x264-params threads=1"

# containers and codecs
for e in mp4 mov mkv avi ts flv; do
    make h264.$e $x264:keyint=12
done
make h264-open.mp4 $x264:keyint=10:open-gop=1:scenecut=0:bframes=3
make h264-open.mkv $x264:keyint=10:open-gop=1:scenecut=0:bframes=3
make h264-open.ts $x264:keyint=10:open-gop=1:scenecut=0:bframes=3
make h264-frag.mp4 $x264:keyint=12 -movflags frag_keyframe+empty_moov
make h264-refresh.mp4 $x264:keyint=12:intra-refresh=1:bframes=0
make h264-pyramid.mp4 $x264:keyint=24:bframes=7:b-pyramid=strict
make hevc.mp4 -c:v libx265 -preset fast -pix_fmt yuv420p -x265-params log-level=none:keyint=12:pools=1
make hevc-open.mp4 -c:v libx265 -preset fast -pix_fmt yuv420p -x265-params log-level=none:keyint=10:min-keyint=10:open-gop=1:pools=1
make hevc-10.mkv -c:v libx265 -preset fast -pix_fmt yuv420p10le -x265-params log-level=none:pools=1
make mpeg4.mp4 -c:v mpeg4 -bf 2
make mpeg4.avi -c:v mpeg4 -bf 2
make mpeg4.mkv -c:v mpeg4 -bf 2
make xvid.avi -c:v libxvid
make mpeg2.ts -c:v mpeg2video -bf 2
make mpeg2.mpg -c:v mpeg2video -bf 2
make vp8.webm -c:v libvpx -auto-alt-ref 1 -lag-in-frames 8 -deadline realtime
make vp9.webm -c:v libvpx-vp9 -deadline realtime -cpu-used 8
make vp9.mp4 -c:v libvpx-vp9 -deadline realtime -cpu-used 8
make av1.mp4 -c:v libaom-av1 -cpu-used 8 -usage realtime
make av1.mkv -vf scale=64:64 -c:v libsvtav1 -preset 12
make mjpeg.avi -c:v mjpeg
make mjpeg.mov -c:v mjpeg
make prores.mov -c:v prores_ks
make prores4444.mov -vf format=yuva444p10 -c:v prores_ks
make ffv1.mkv -c:v ffv1 -pix_fmt yuv420p
make ffv1-rgb.mkv -c:v ffv1 -pix_fmt bgr0
make png.mov -c:v png
make qtrle-alpha.mov -vf format=argb,colorchannelmixer=aa=0.5 -c:v qtrle
make raw.avi -c:v rawvideo -pix_fmt bgr24
make gif.gif -r 10
make theora.ogv -c:v libtheora
make wmv.asf -c:v wmv2
make apng.apng -r 5
make vp9-alpha.webm -vf format=yuva420p,colorchannelmixer=aa=0.5 -c:v libvpx-vp9 -deadline realtime -cpu-used 8

# cuts by stream copy
make long.mp4 $x264:keyint=24:scenecut=0 -r 24
make long-open.mp4 $x264:keyint=16:open-gop=1:scenecut=0:bframes=3
make long-4.mp4 -c:v mpeg4 -bf 2 -g 16
make long-hevc.mp4 -c:v libx265 -preset fast -pix_fmt yuv420p -x265-params log-level=none:keyint=16:pools=1
for e in mp4 mov mkv ts avi; do
    copy cut-0.3.$e long.mp4 0.3 0.5
    copy cut-1.1.$e long.mp4 1.1 0.5
    copy cut-open.$e long-open.mp4 0.9 0.6
done
copy cut-part4.mp4 long-4.mp4 0.8 0.5
copy cut-hevc.mp4 long-hevc.mp4 0.8 0.5
copy cut-hevc.mkv long-hevc.mp4 0.8 0.5
copy cut-vp9.webm vp9.webm 0.5 0.5
copy cut-twice.mp4 cut-0.3.mp4 0.2 0.25
copy cut-tail.mp4 long.mp4 1.8 1
copy cut-frag.mp4 h264-frag.mp4 0.7 0.5
for e in mp4 mkv; do
    copy cut-pyramid.$e h264-pyramid.mp4 1.2 0.5
    copy cut-refresh.$e h264-refresh.mp4 0.8 0.5
    copy cut-hevc-open.$e hevc-open.mp4 0.8 0.6
done
copy cut-mpeg2.ts mpeg2.ts 0.8 0.6
copy cut-mpeg2.mkv mpeg2.ts 0.8 0.6
copy cut-h264.ts h264.ts 0.8 0.6
copy cut-prores.mov prores.mov 0.8 0.6
cut cut-open-noedit.mp4 long-open.mp4 -ss 0.9 -i "$t/long-open.mp4" -t 0.5 -c copy -use_editlist 0
cut cut-open-inner.mp4 long-open.mp4 -i "$t/long-open.mp4" -ss 0.9 -t 0.5 -c copy
cut cut-frag-edit.mp4 long.mp4 -ss 0.7 -i "$t/long.mp4" -t 0.5 -c copy -movflags frag_keyframe
cut cut-leading.mp4 mpeg4.mkv -i "$t/mpeg4.mkv" -ss 0.33 -t 0.119 -c copy
cut cut-noedit.mp4 long.mp4 -ss 0.7 -i "$t/long.mp4" -t 0.5 -c copy -use_editlist 0
cut cut-negative.mp4 long.mp4 -ss 0.7 -i "$t/long.mp4" -t 0.5 -c copy -avoid_negative_ts disabled
cut cut-inner.mp4 long.mp4 -i "$t/long.mp4" -ss 0.7 -t 0.5 -c copy
cut cut-unkeyed.mkv long.mp4 -i "$t/long.mp4" -ss 0.3 -t 0.9 -c copy -copyinkf
cut cut-unkeyed.ts long-open.mp4 -i "$t/long-open.mp4" -ss 0.3 -t 0.9 -c copy -copyinkf

# times
make rate-23.976.mp4 -r 24000/1001 $x264:keyint=12
make rate-1.mp4 -r 1 $x264
make rate-120.mp4 -r 120 -t 0.5 $x264
make variable.mp4 -vf "select='not(mod(n\,3))+not(mod(n\,7))'" -fps_mode passthrough $x264:keyint=12
make variable.mkv -vf "select='not(mod(n\,3))+not(mod(n\,7))'" -fps_mode passthrough $x264:keyint=12
cut offset.mp4 h264.mp4 -itsoffset 3.2 -i "$t/h264.mp4" -c copy
cut offset.mkv h264.mp4 -itsoffset 3.2 -i "$t/h264.mp4" -c copy -copyts
cut audio-first.mp4 h264.mp4 -f lavfi -i sine=duration=2 -i "$t/h264.mp4" -c:v copy -map 0:a -map 1:v
cut audio-early.mp4 h264.mp4 -f lavfi -i sine=duration=2 -itsoffset 0.7 -i "$t/h264.mp4" -c:v copy -map 0:a -map 1:v
cut audio-late.mkv h264.mp4 -itsoffset 0.5 -f lavfi -i sine=duration=2 -i "$t/h264.mp4" -c:v copy -map 0:a -map 1:v
cut untimed.h264 h264.mp4 -i "$t/h264.mp4" -c copy -bsf:v h264_mp4toannexb
cut untimed.avi untimed.h264 -fflags +genpts -i "$t/untimed.h264" -c copy
cut uneven.mkv h264.mp4 -i "$t/h264.mp4" -c copy -bsf:v "setts=pts=PTS+5*mod(N\,2)"
cut jump.ts h264.ts -i "concat:$t/h264.ts|$t/h264.ts" -c copy

# matrices, sizes and colours
for r in 90 180 270; do
    cut rotate-$r.mp4 h264.mp4 -i "$t/h264.mp4" -c copy -metadata:s:v:0 rotate=$r
done
# The entries a, b, c, d of a track's matrix: 44 bytes behind the name of its box.
one='\000\001\000\000' minus='\377\377\000\000' none='\000\000\000\000'
matrix() { # NAME a b c d
    [ -s "$t/h264.mp4" ] || return
    cp "$t/h264.mp4" "$t/$1"
    place=$(($(grep -abo tkhd "$t/$1" | head -1 | cut -d: -f1) + 44))
    printf "$2$3$none$4$5" | dd of="$t/$1" bs=1 seek=$place conv=notrunc 2>/dev/null
}
matrix mirror-x.mp4 $minus $none $none $one
matrix mirror-y.mp4 $one $none $none $minus
matrix turn-180.mp4 $minus $none $none $minus
matrix transpose.mp4 $none $one $one $none
matrix transverse.mp4 $none $minus $minus $none
matrix turn-clock.mp4 $none $one $minus $none
matrix turn-anti.mp4 $none $minus $one $none
matrix empty.mp4 $none $none $none $none
cut flip-sei.mp4 h264.mp4 -i "$t/h264.mp4" -c copy -bsf:v h264_metadata=display_orientation=insert:flip=horizontal

# Photos with each orientation of EXIF.
exif() {
    printf '\377\330\377\341\000\042Exif\000\000MM\000\052\000\000\000\010\000\001\001\022\000\003'
    printf "\\000\\000\\000\\001\\000\\00$1\\000\\000\\000\\000\\000\\000"
    tail -c +3 "$t/jpeg.jpg"
}
make jpeg.jpg -frames:v 1 -pix_fmt yuvj444p
for o in 1 2 3 4 5 6 7 8; do
    [ ! -s "$t/jpeg.jpg" ] || exif $o >"$t/exif-$o.jpg"
done
make cover.png -vf scale=100:80 -frames:v 1
cut cover-only.mp4 h264.mp4 -f lavfi -i sine=duration=1 -i "$t/cover.png" -map 0 -map 1 -c:v copy -disposition:v:0 attached_pic
make odd.mkv -vf scale=63:47 -c:v ffv1 -pix_fmt yuv420p
make odd.mp4 -vf scale=63:47 -c:v libx264 -pix_fmt yuv444p
make wide.mp4 -vf scale=130:34 $x264
make sar.mp4 -vf setsar=4/3 $x264
make interlaced.mp4 -vf tinterlace=interleave_top $x264:tff=1
make interlaced.ts -vf tinterlace=interleave_top -c:v mpeg2video -flags +ilme+ildct -top 1
make ten.mp4 -c:v libx264 -pix_fmt yuv420p10le
make 422.mp4 -c:v libx264 -pix_fmt yuv422p
make 444.mp4 -c:v libx264 -pix_fmt yuv444p
make rgb.mp4 -c:v libx264rgb -qp 0
make gray.mkv -c:v ffv1 -pix_fmt gray
make full.mp4 -vf scale=out_range=full -color_range pc $x264
for m in bt709 smpte170m bt2020nc; do
    make matrix-$m.mp4 -vf "scale=out_color_matrix=$(echo $m | sed s/nc//)" -colorspace $m -color_primaries bt709 -color_trc bt709 $x264
done
make one.png -frames:v 1
make alpha.png -vf format=rgba,colorchannelmixer=aa=0.5 -frames:v 1
make pal.png -frames:v 1 -pix_fmt pal8
cut cover.mp4 h264.mp4 -i "$t/cover.png" -i "$t/h264.mp4" -map 0 -map 1 -c copy -disposition:v:0 attached_pic
cut cover.mkv h264.mp4 -i "$t/h264.mp4" -c copy -attach "$t/cover.png" -metadata:s:t mimetype=image/png
cut two.mp4 h264.mp4 -i "$t/h264.mp4" -i "$t/wide.mp4" -map 0 -map 1 -c copy
cut zero.mp4 h264.mp4 -i "$t/h264.mp4" -c copy -movflags faststart -video_track_timescale 24

# Says what is wrong about a clip whose frames are in CLIP.want and CLIP.got.
compare() {
    if ! cmp -s "$1.want" "$1.got"; then
        echo "frames differ: ffmpeg has $(stat -c %s "$1.want") bytes, here $(stat -c %s "$1.got"); $(cat "$1.txt")"
    elif [ -s "$1.want" ] && ! grep -qE ' ([0-9]+) frames, (\1|0) announced' "$1.txt"; then
        cat "$1.txt"
    fi
}

for clip in $(ls "$t"); do
    [ "$clip" != log ] || continue
    total=$((total + 1))
    : >"$t/$clip.want"
    ff -i "$t/$clip" -map 0:V:0 -fps_mode passthrough -sws_flags bilinear \
        -f rawvideo -pix_fmt rgb24 "$t/$clip.want"
    $frames "$t/$clip" >"$t/$clip.got" 2>"$t/$clip.txt"
    wrong=$(compare "$t/$clip")
    [ ! "$wrong" ] || { echo "$clip: $wrong"; bad=$((bad + 1)); }
    rm -f "$t/$clip.want" "$t/$clip.got" "$t/$clip.txt"
done
echo "$total clips, $bad not as ffmpeg shows them, $skipped not made"
[ $bad = 0 ] && [ $total -gt 20 ]
