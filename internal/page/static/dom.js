// The document. What senders wrote gets into it as texts and attributes only, so it is never parsed as markup.

export const $ = (id) => document.getElementById(id);

export const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };

// el makes an element, and svg one of a drawing; children are nodes or texts.
export const el = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
export const svg = (name, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== undefined && child !== ""));
  return made;
}

// An address is a link only when it leads to the web: javascript: and the like stay text.
export function linkTo(address) {
  try {
    if (["http:", "https:"].includes(new URL(address).protocol))
      return el("a", { href: address, rel: "noopener noreferrer nofollow", target: "_blank" }, address);
  } catch { /* it is none */ }
  return address;
}

// linked are the parts of a text, its addresses as links.
export function linked(text) {
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(/\bhttps?:\/\/[^\s<>"'`]+/gi)) {
    let address = match[0].replace(/[.,;:!?]+$/, "");
    if (address.endsWith(")") && !address.includes("(")) address = address.slice(0, -1);
    parts.push(text.slice(from, match.index), linkTo(address));
    from = match.index + address.length;
  }
  return [...parts, text.slice(from)];
}
