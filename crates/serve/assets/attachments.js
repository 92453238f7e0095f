// Pictures that go with a message: dropped, pasted, or chosen. They wait here until it is sent.

import { bytes, h, t } from "./kit.js";

const TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/** A frame has at most 1 MiB, and base64 takes a third more. */
const BYTES_MAX = 700 * 1024;
const COUNT_MAX = 4;

/** Watches the composer. `take()` gives the pictures for a message and forgets them; `put()` gives them back; `count()` says how many there are. */
export function attachments(form, field, complain) {
  let list = [];
  const shelf = h("ul", { class: "attachments", "aria-label": t("attachments") });
  field.before(shelf);
  const draw = () => {
    shelf.hidden = list.length === 0;
    shelf.replaceChildren(...list.map((item) => h("li", {}, h("span", {}, `${item.name} · ${bytes(item.size)}`), h("button", { type: "button", class: "plain small", "aria-label": t("remove", { name: item.name }), on: { click: () => put(list.filter((other) => other !== item)) } }, "×"))));
  };
  const put = (items) => {
    list = items;
    draw();
  };
  const add = async (files) => {
    for (const file of files) {
      const sum = list.reduce((all, { size }) => all + size, file.size);
      if (!TYPES.includes(file.type)) complain(t("attach-type", { name: file.name }));
      else if (sum > BYTES_MAX || list.length >= COUNT_MAX) complain(t("attach-size", { name: file.name, n: bytes(BYTES_MAX) }));
      else put([...list, { name: file.name || file.type, size: file.size, media_type: file.type, data: await base64(file) }]);
    }
  };
  field.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    add(files);
  });
  form.addEventListener("dragover", (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    form.classList.add("dropping");
  });
  form.addEventListener("dragleave", () => form.classList.remove("dropping"));
  form.addEventListener("drop", (event) => {
    form.classList.remove("dropping");
    const files = [...event.dataTransfer.files];
    if (files.length === 0) return;
    event.preventDefault();
    add(files);
  });
  const chooser = form.querySelector("#attach");
  chooser?.addEventListener("change", () => {
    add([...chooser.files]);
    chooser.value = "";
  });
  draw();
  return {
    take: () => {
      const images = list.map(({ media_type, data, name, size }) => ({ media_type, data, name, size }));
      put([]);
      return images;
    },
    put: (images) => put([...images, ...list]),
    count: () => list.length,
  };
}

async function base64(file) {
  const raw = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < raw.length; at += 0x8000) text += String.fromCharCode(...raw.subarray(at, at + 0x8000));
  return btoa(text);
}
