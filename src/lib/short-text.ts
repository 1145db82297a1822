/** The beginning of a text, at most so many UTF-16 units: the last character is whole, or left out. */
export function shortText(text: string, max: number): string {
  return text.length <= max ? text : text.slice(0, max).replace(/[\ud800-\udbff]$/, '');
}

/** The beginning of a text, at most so many bytes of UTF-8. */
export function shortBytes(text: string, max: number): string {
  const bytes = Buffer.from(text);
  // As a stream, it holds back a last character that is not whole.
  return bytes.length <= max ? text : new TextDecoder().decode(bytes.subarray(0, max), { stream: true });
}
