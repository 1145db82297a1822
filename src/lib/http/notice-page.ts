export interface NoticeLink {
  readonly href: string;
  readonly text: string;
}

export interface PageNotice {
  readonly title: string;
  readonly text: string;
  /** In small letters, such as an error code. */
  readonly detail?: string;
  readonly link?: NoticeLink | undefined;
  /** What a button says that posts to {@link action}. */
  readonly button?: string;
  /** Left out: the address of the page. */
  readonly action?: string;
}

/** The look of pages that are not of the web build. Fingers need buttons of 44 pixels. */
export const PAGE_STYLE = `:root{color-scheme:light dark;background:Canvas;color:CanvasText}
body{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:8vh auto;padding:0 1em;overflow-wrap:anywhere}
h1{font-size:1.75em;line-height:1.25}
button{font:inherit;font-weight:600;min-height:44px;max-width:100%;padding:.5em 1em;border:1px solid #17634f;border-radius:8px;background:#17634f;color:#fff}`;

/** A header for pages with a button, which nobody may frame. */
export const NOTICE_POLICY = [
  'content-security-policy',
  "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
] as const;

/** A page with one sentence, which loads nothing. */
export function noticePage({ title, text, detail, link, button, action }: PageNotice): string {
  return htmlPage(
    title,
    `<p>${escapeHtml(text)}</p>
${link === undefined ? '' : `<p><a href="${escapeHtml(link.href)}">${escapeHtml(link.text)}</a></p>\n`}${
  button === undefined
    ? ''
    : `<form method="post"${action === undefined ? '' : ` action="${escapeHtml(action)}"`}><button>${escapeHtml(button)}</button></form>\n`
}${detail === undefined ? '' : `<p><small>${escapeHtml(detail)}</small></p>\n`}`,
  );
}

/** @param body HTML below the title, with a line end */
export function htmlPage(title: string, body: string, style = PAGE_STYLE): string {
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escapeHtml(title)}</title>
<style>${style}</style>
<main>
<h1>${escapeHtml(title)}</h1>
${body}</main>
</html>
`;
}

/** Also for the values of attributes in quotes. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
