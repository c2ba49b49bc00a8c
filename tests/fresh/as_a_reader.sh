#!/usr/bin/env bash
# Within the minimal root: opens /opt/sweep/report.html with the widths of a desk and of a phone, and fails on what a reader would
# stumble over: an error on the console, a picture that is not there, text over text or outside of its picture, a page wider than
# the screen, with everything folded up and with everything opened; something folded up that is not printed; tables that the page's
# script does not sort and filter; and a picture that does not follow a dark screen.
set -euo pipefail
echo "reading the report"

browser() {
  timeout 120 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir=/tmp/profile "$@"
}

# The page as it is, which lets no script but its own run, and once more with a script that looks at it.
cat >/opt/look.js <<'JS'
addEventListener('load', () => {
  const problems = [];
  if (document.documentElement.scrollWidth > innerWidth) problems.push('the page is wider than the screen');
  for (const fold of document.querySelectorAll('details')) fold.open = true;
  const pictures = [...document.querySelectorAll('figure svg')];
  if (pictures.length !== document.querySelectorAll('figure').length) problems.push('a figure has no picture');
  if (document.documentElement.scrollWidth > innerWidth) problems.push('the opened page is wider than the screen');
  for (const picture of pictures) {
    const id = picture.closest('figure').id, frame = picture.getBoundingClientRect();
    if (frame.width < 200 || frame.height < 60) problems.push(id + ' is not to be seen');
    const texts = [...picture.querySelectorAll('text')].filter(text => text.textContent.trim() !== '').map(text => {
      const box = text.getBoundingClientRect(), slack = box.height / 4;  // a line's box is higher than its letters
      return {text: text.textContent, left: box.left, right: box.right, top: box.top + slack, bottom: box.bottom - slack};
    });
    texts.forEach((a, i) => {
      if (a.left < frame.left - 2 || a.right > frame.right + 2) problems.push(id + ': "' + a.text + '" leaves its picture');
      for (const b of texts.slice(0, i)) {
        if (a.left + 1 < b.right && b.left + 1 < a.right && a.top < b.bottom && b.top < a.bottom)
          problems.push(id + ': "' + a.text + '" over "' + b.text + '"');
      }
    });
  }
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const brightness = colour => colour.match(/[0-9.]+/g).slice(0, 3).reduce((sum, part) => sum + +part, 0) / 765;
  for (const picture of pictures) {
    const id = picture.closest('figure').id, paper = brightness(getComputedStyle(picture.querySelector('rect')).fill);
    if (dark !== paper < 0.5) problems.push(id + ' is ' + (dark ? 'light on a dark' : 'dark on a light') + ' screen');
    for (const text of picture.querySelectorAll('text')) {
      if (Math.abs(brightness(getComputedStyle(text).fill) - paper) < 0.3) problems.push(id + ': "' + text.textContent + '" is pale');
    }
  }
  const table = document.querySelector('#points ~ details table.sort, #points ~ .wide table.sort'), rows = [...table.tBodies[0].rows];
  table.tHead.rows[0].cells[3].querySelector('button').click();  // output tokens/s, the most first
  const rates = [...table.tBodies[0].rows].map(row => parseFloat(row.cells[3].textContent.replace(/,/g, '')));
  if (rates.some((rate, i) => i > 0 && rate > rates[i - 1])) problems.push('the table is not sorted');
  const box = document.querySelector('#points ~ details input, #points ~ p input');
  const left = words => {
    box.value = words;
    box.dispatchEvent(new Event('input'));
    return rows.filter(row => !row.hidden).length;
  };
  if (left('no-such-word') !== 0 || left(rows[0].cells[0].textContent) === 0) problems.push('the table is not filtered');
  document.title = 'LOOKED AT ' + pictures.length + ' PICTURES: ' + (problems.length ? problems.join('; ') : 'NO PROBLEM');
});
JS
{
  sed -e '/Content-Security-Policy/d' -e '/<\/body>/,$d' /opt/sweep/report.html
  echo '<script>'
  cat /opt/look.js
  echo '</script></body></html>'
} >/opt/sweep/looked-at.html

problems=0
problem() { echo "PROBLEM: $*" && problems=$((problems + 1)); }
for width in 1100 390; do
  browser --window-size=$width,1200 --enable-logging=stderr --screenshot=/tmp/page-$width.png file:///opt/sweep/report.html 2>/tmp/log ||
    problem "Chromium failed at $width: $(tail -n 3 /tmp/log)"
  # Of a machine that is busy Chromium says that its network is slow; there is none.
  ! grep CONSOLE /tmp/log | grep -v 'Slow network is detected' || problem "the console at $width pixels says something"
  bytes=$(stat -c %s /tmp/page-$width.png || echo 0)
  [ "$bytes" -gt 20000 ] || problem "the page at $width pixels is empty: $bytes bytes of PNG"
  for scheme in 1 0; do  # light, dark
    verdict=$(browser --window-size=$width,1200 --blink-settings=preferredColorScheme=$scheme --dump-dom file:///opt/sweep/looked-at.html 2>/tmp/log |
      grep -oE '<title>LOOKED AT .*</title>' || echo "no verdict")
    echo "$width pixels, scheme $scheme: $verdict"
    grep -qE 'LOOKED AT [1-9][0-9]* PICTURES: NO PROBLEM' <<<"$verdict" || problem "at $width pixels"
  done
done

# Paper has nothing to click on: what is folded up on a screen takes its room there.
sed 's/<details>/<details open>/' /opt/sweep/report.html >/opt/sweep/opened.html
for page in report opened; do
  browser --no-pdf-header-footer --print-to-pdf=/tmp/$page.pdf file:///opt/sweep/$page.html 2>/tmp/log ||
    problem "Chromium could not print: $(tail -n 3 /tmp/log)"
done
pages() { grep -aoE '/Type ?/Page\b' "$1" | wc -l; }
printed=$(pages /tmp/report.pdf) opened=$(pages /tmp/opened.pdf)
echo "printed: $printed pages; with everything opened before: $opened pages"
[ "$printed" -gt 0 ] && [ "$printed" -eq "$opened" ] || problem "something that is folded up is not printed"
[ "$problems" -eq 0 ]
