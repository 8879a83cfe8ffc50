// The document. What senders wrote gets into it as texts and attributes only, so it is never parsed as markup.

export const $ = (id) => document.getElementById(id);

export const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };

// el makes an element; children are nodes or texts.
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== undefined && child !== ""));
  return made;
}

export function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.append(text);
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
