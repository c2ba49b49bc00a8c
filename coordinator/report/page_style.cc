#include "coordinator/report/page_style.h"

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

constexpr char kStyle[] = R"css(
:root { color-scheme: light dark; --paper: #fff; --ink: #222; --soft: #555; --line: #ccc;
  --link: #0b559f; --tint: #f4f6f9; --shade: rgba(0, 0, 0, .22); }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1.4rem 3rem; max-width: 84rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 Helvetica, Arial, 'Liberation Sans', sans-serif; }
h1 { font-size: 1.25rem; line-height: 1.25; margin: 0 0 .15rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.4rem 0 .4rem; padding-top: .5rem; border-top: 2px solid var(--ink); }
h3 { font-size: 1rem; margin: 0 0 .15rem; line-height: 1.3; }
p { margin: .3rem 0 .6rem; max-width: 46rem; overflow-wrap: anywhere; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
nav { margin: .6rem 0 0; font-size: .9rem; }
nav a { margin-right: 1.1rem; white-space: nowrap; }
.where { font-size: .88rem; color: var(--soft); margin: 0 0 .5rem; max-width: none; }
.note { border: 2px solid var(--ink); padding: .4rem .8rem; font-weight: bold; max-width: none; }
.first { display: grid; gap: .4rem 2.2rem; align-items: start;
  grid-template: "verdict picture" auto "cards picture" 1fr / minmax(0, 1fr) minmax(0, 37rem); }
.first.plain { display: block; }
.verdict { grid-area: verdict; }
.verdict p { max-width: none; }
.verdict .answer { font-size: 1.5rem; line-height: 1.25; font-weight: bold; margin: .3rem 0 .5rem; }
.first figure { grid-area: picture; max-width: none; }
.cards { grid-area: cards; display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 13rem), 1fr));
  gap: .6rem; margin: .4rem 0; padding: 0; }
.cards div { background: var(--tint); border-radius: 6px; padding: .45rem .7rem; overflow-wrap: anywhere; }
.cards dt { font-size: .8rem; color: var(--soft); }
.cards dd { margin: 0; font-size: .8rem; line-height: 1.35; }
.cards p { margin: 0; font-size: .88rem; }
.cards b { font-size: 1.25rem; line-height: 1.25; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 2rem 2.4rem;
  align-items: start; margin-top: 1rem; }
figure { margin: 0; max-width: 36rem; min-width: 0; }
figcaption p { font-size: .92rem; margin: 0 0 .6rem; }
figure svg { display: block; width: 100%; height: auto; }
.wide { overflow-x: auto; margin: .6rem 0;
  background: linear-gradient(to right, var(--paper) 30%, transparent) left / 3rem 100% local,
  linear-gradient(to left, var(--paper) 30%, transparent) right / 3rem 100% local,
  linear-gradient(to right, var(--shade), transparent) left / 1rem 100% scroll,
  linear-gradient(to left, var(--shade), transparent) right / 1rem 100% scroll; background-repeat: no-repeat; }
table { border-collapse: collapse; font-size: .84rem; line-height: 1.35; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { border-bottom: 2px solid var(--ink); vertical-align: bottom; }
th.l, td.l { text-align: left; }
td { white-space: nowrap; }
td.l, td:last-child { min-width: 6rem; white-space: normal; overflow-wrap: anywhere; }
td.l:first-child { min-width: 10.5rem; }
th button { font: inherit; font-weight: bold; color: inherit; background: none; border: 0; padding: 0;
  text-align: inherit; cursor: pointer; }
th button:hover { text-decoration: underline; }
th[aria-sort=ascending] button::after { content: " \25B2"; }
th[aria-sort=descending] button::after { content: " \25BC"; }
.filter { font-size: .9rem; }
.filter input { font: inherit; color: inherit; background: var(--tint); border: 1px solid var(--soft);
  border-radius: 4px;  padding: .15rem .4rem; width: 16rem; max-width: 100%; }
.slides { display: none; font-size: .85rem; color: var(--soft); margin: 0; }
pre { font: .8rem/1.45 'Liberation Mono', Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere;
  margin: .4rem 0;  padding: .5rem .7rem; border-left: 3px solid var(--line); }
details { margin: .9rem 0; }
summary { cursor: pointer; font-size: .92rem; color: var(--link); overflow-wrap: anywhere; }
.paper { display: none; }
@media screen and (max-width: 70rem) { .slides { display: block; }
  .first { grid-template: "verdict" "picture" "cards" / minmax(0, 1fr); } }
@media (max-width: 30rem) { body { padding: .7rem .6rem 2rem; } .verdict .answer { font-size: 1.2rem; }
  .cards { grid-template-columns: repeat(auto-fit, minmax(min(100%, 9.5rem), 1fr)); } }
@page { margin: 15mm 12mm; }
@media print {
  html { font-size: 13px; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav, .screen, .slides { display: none; }
  .paper { display: block; }
  .first { display: block; }
  .first figure { max-width: 32rem; }
  details::details-content { content-visibility: visible; }
  summary { list-style: none; color: #222; font-weight: bold; break-after: avoid; }
  h2 { break-after: avoid; margin-top: 1.4rem; }
  .cards { grid-template-columns: repeat(3, 1fr); }
  .cards div { border: 1px solid #999; }
  .figures { grid-template-columns: 1fr 1fr; gap: 1rem 1.4rem; }
  figure, .cards div, tr, pre { break-inside: avoid; }
  .wide { overflow: visible; background: none; }
  table { font-size: 6.5pt; }
  th, td { padding-right: .35rem; }
  td { white-space: normal; }
  td.l, td:last-child, td.l:first-child { min-width: 4rem; }
}
)css";

// What pictures are drawn in, and what takes its place on a dark screen: paper and inks, then the series' colours.
constexpr struct {
  const char *drawn, *dark;
} kDarkColours[] = {
    {"#fff", "#15181d"},    {"#222", "#e8e8e8"},    {"#333", "#d8d8d8"},    {"#555", "#b4b8bf"},
    {"#777", "#9aa0a8"},    {"#ddd", "#363b43"},    {"#e8e8e8", "#2a2f37"}, {"#bbb", "#565c66"},
    {"#0b559f", "#6fb1f5"}, {"#c24b00", "#ff9c5a"}, {"#00785a", "#43d1a3"}, {"#8a3a9e", "#d79ae8"},
    {"#a07600", "#e3bd45"}, {"#3a3a3a", "#c8c8c8"}, {"#3d97cf", "#7cc8f5"}, {"#c2185b", "#ff7fac"},
};

}  // namespace

std::string PageStyle() {
  std::string style = absl::StrCat(
      kStyle,
      "@media screen and (prefers-color-scheme: dark) {\n  :root { --paper: #15181d; --ink: #e8e8e8; --soft: #b4b8bf; "
      "--line: #363b43; --link: #7db7ff; --tint: #20242b; --shade: rgba(255, 255, 255, .25); }\n");
  for (const auto& [drawn, dark] : kDarkColours) {
    for (const char* attribute : {"fill", "stroke"}) {
      absl::StrAppend(&style, "  [", attribute, "=\"", drawn, "\"] { ", attribute, ": ", dark, "; }\n");
    }
  }
  return style + "}\n";
}

// A change needs another hash: the test of the page says which.
const char kPageScript[] = R"js(
for (const table of document.querySelectorAll('table.sort')) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const number = text => {
    const found = text.replace(/,/g, '').match(/[-\u2212]?\d+(\.\d+)?/);
    return found ? +found[0].replace('\u2212', '-') : -Infinity;
  };
  heads.forEach((head, i) => {
    const button = document.createElement('button'), words = head.classList.contains('l');
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.onclick = () => {
      const falls = words ? head.ariaSort === 'ascending' : head.ariaSort !== 'descending', way = falls ? -1 : 1;
      heads.forEach(other => { other.ariaSort = null; });
      head.ariaSort = falls ? 'descending' : 'ascending';
      const text = row => row.cells[i].textContent;
      const compare = words ? (a, b) => a.localeCompare(b, 'en', {numeric: true}) :
                              (a, b) => number(a) - number(b) || 0;
      rows.sort((a, b) => way * compare(text(a), text(b)));
      body.append(...rows);
    };
  });
  const [bar, label, box, count] = ['p', 'label', 'input', 'output'].map(name => document.createElement(name));
  bar.className = 'filter screen';
  box.type = 'search';
  label.append('Only rows with ', box);
  box.oninput = () => {
    const words = box.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const row of rows) {
      row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = shown + ' of ' + rows.length;
  };
  bar.append(label, ' ', count);
  table.parentElement.before(bar);
}
)js";
const char kPageScriptHash[] = "sDcgEC6olg6Wp2Q1+UqcXXRiiMye6LX7DgsQPA7vuzk=";

}  // namespace stagecoach
