import { hash } from 'node:crypto';
import { escapeHtml, htmlPage, PAGE_STYLE, type PageNotice } from '../../../lib/http/notice-page.ts';
import type { SignedInPerson } from '../../../traffic-policy/sign-in/identity-provider.ts';
import { LINK_HOURS } from '../manage-sign-ins.ts';
import { MAX_PASSWORD, MIN_PASSWORD } from '../passwords.ts';
import type { PasskeyForm } from './passkey-forms.ts';

const STYLE = `${PAGE_STYLE}
h2{font-size:1.25em}
ul{padding:0;list-style:none}
li a{display:inline-block;padding:.6em 0 0}
label,input{display:block;width:100%;box-sizing:border-box}
input,button{margin:.25em 0 1em}
input{font:inherit;min-height:44px;padding:.5em .75em}
[role=alert]{border-left:.25em solid #c00;padding-left:.75em}
button[type=button]{background:none;border-color:currentColor;color:inherit}`;

/** For the content security policy: of what the pages have in themselves. */
export const STYLE_DIGESTS = [STYLE, PAGE_STYLE].map((style) => `'sha256-${hash('sha256', style, 'base64')}'`);

/** Where the page has its script. */
export const PASSKEY_SCRIPT = '/passkeys.js';

/** An endpoint that a person can open in a browser. */
export interface Application {
  readonly url: string;
  /** What its owner calls it; empty: nothing. */
  readonly name: string;
}

/** Applications on the page of a person. */
const MAX_LISTED = 500;

export interface SignInDestination {
  /** As the endpoint has sealed it. */
  readonly request: string;
  readonly host: string;
  /** Whether it is the dashboard of this gateway. */
  readonly isDashboard: boolean;
}

interface Again {
  readonly email?: string;
  readonly problem: string;
}

export function signInView(
  to: SignInDestination | null,
  passkey: PasskeyForm,
  { email = '', problem }: Partial<Again> = {},
): string {
  return view(
    'Sign in',
    `${to === null ? '' : paragraph(purposeOf(to))}${alert(problem)}
<form method="post" action="/sign-in">${requestField(to)}
<label>Email <input name="email" type="email" autocomplete="username" required maxlength="254" value="${escapeHtml(email)}"></label>
<label>Password <input name="password" type="password" autocomplete="current-password" required maxlength="${MAX_PASSWORD}"></label>
<button>Sign in</button>
</form>
${passkeyForm(passkey, 'Sign in with a passkey', to)}
<p><small>Forgotten? Ask the operator of this gateway for a new link.</small></p>
`,
  );
}

function purposeOf({ host, isDashboard }: SignInDestination): string {
  if (isDashboard) return `to use the dashboard of this gateway at ${host}.`;
  return `to continue to ${host}, which then sees your name, email address and groups.`;
}

/** @param callback of the dashboard */
export function notForDashboard(person: SignedInPerson | null, callback: string): PageNotice {
  return {
    title: 'Not allowed',
    text: `${person?.email ?? 'This account'} may not use the dashboard of this gateway. Ask its operator, or sign in as somebody else.`,
    detail: 'ERR_GATEWAY_NOT_ADMITTED',
    link: { href: new URL('/', callback).href, text: 'Back to the dashboard' },
  };
}

export function continueView(to: SignInDestination, { email }: SignedInPerson): string {
  const other = `/?${new URLSearchParams({ request: to.request, as: 'other' })}`;
  return view(
    `Continue to ${to.host}?`,
    `${paragraph(`You are signed in as ${email}. ${to.host} then sees your name, email address and groups.`)}
<form method="post" action="/continue">${requestField(to)}<button>Continue as ${escapeHtml(email)}</button></form>
<p><a href="${escapeHtml(other)}">Sign in as somebody else</a></p>
`,
  );
}

/** @param applications that the person can open; left out: there is no list of them */
export function accountView({ email, groups = [] }: SignedInPerson, applications?: readonly Application[]): string {
  const member = groups.length === 0 ? '' : ` Your groups: ${groups.join(', ')}.`;
  return view(
    'Signed in',
    `${paragraph(`You are signed in as ${email}.${member}${applications === undefined ? ' To open a tunnel, go to its address.' : ''}`)}
${applications === undefined ? '' : applicationList(applications)}<form method="post" action="/sign-out"><button>Sign out everywhere</button></form>
<p><small>This ends all your sessions at this gateway, in all browsers.</small></p>
`,
  );
}

function applicationList(applications: readonly Application[]): string {
  const items = applications.slice(0, MAX_LISTED).map(({ url, name }) => {
    const below = name === '' ? '' : `<br><small>${escapeHtml(name)}</small>`;
    return `<li><a href="${escapeHtml(url)}">${escapeHtml(url.replace(/\/$/, ''))}</a>${below}</li>\n`;
  });
  const more = applications.length - items.length;
  return `<h2>Your applications</h2>
${items.length === 0 ? paragraph('No application is online for you.') : `<ul>\n${items.join('')}</ul>`}
${more > 0 ? paragraph(`And ${more} more.`) : ''}`;
}

export function chooseView(
  { email }: SignedInPerson,
  token: string,
  passkey: PasskeyForm,
  { problem, isFirst }: Partial<Again> & { isFirst: boolean },
): string {
  return view(
    'Choose how you sign in',
    `${isFirst ? '' : paragraph('It replaces what you have signed in with before.')}${alert(problem)}
<form method="post" action="/link/${escapeHtml(token)}">
<label>Email <input name="email" type="email" autocomplete="username" value="${escapeHtml(email)}" readonly></label>
<label>Password <input name="password" type="password" autocomplete="new-password" required minlength="${MIN_PASSWORD}" maxlength="${MAX_PASSWORD}" aria-describedby="hint"></label>
<p id="hint"><small>At least ${MIN_PASSWORD} characters, such as four words.</small></p>
<button>Save the password</button>
</form>
${passkeyForm(passkey, 'Use a passkey instead', null)}
<p><small>A passkey is on your device, and needs your finger, face or PIN.</small></p>
`,
  );
}

export const LINK_GONE: PageNotice = {
  title: 'Link expired',
  text: `This link was used before, or is older than ${LINK_HOURS} hours. Ask the operator of this gateway for a new one.`,
};

export const FORM_GONE: PageNotice = {
  title: 'Try again',
  text: 'The passkey is unknown here, or this page was open for more than 15 minutes.',
  link: { href: '/', text: 'Sign in' },
};

export const REQUEST_GONE: PageNotice = {
  title: 'Start again',
  text: 'This sign-in has taken more than 15 minutes. Open the address of the tunnel, or the dashboard, again.',
};

export const SIGNED_OUT: PageNotice = {
  title: 'Signed out',
  text: 'All your sessions at this gateway have ended, in all browsers.',
  link: { href: '/', text: 'Sign in' },
};

export const CROSS_SITE: PageNotice = {
  title: 'Not sent',
  text: 'The page of another site has sent this form, or this page was open for too long. Open it again.',
  link: { href: '/', text: 'Sign in' },
};

function view(title: string, body: string): string {
  return htmlPage(title, body, STYLE);
}

function paragraph(text: string): string {
  return `<p>${escapeHtml(text)}</p>`;
}

/** Hidden from browsers without scripts or passkeys. */
function passkeyForm(
  { kind, action, options, ticket }: PasskeyForm,
  text: string,
  to: SignInDestination | null,
): string {
  const fields = `<input name="ticket" type="hidden" value="${escapeHtml(ticket)}"><input name="response" type="hidden">`;
  return `<form method="post" action="${escapeHtml(action)}" data-passkey="${kind}" data-options="${escapeHtml(JSON.stringify(options))}" hidden>
${requestField(to)}${fields}<button type="button">${text}</button>
<p role="alert" hidden>No passkey was used. Try again, or use a password.</p>
</form>
<script type="module" src="${PASSKEY_SCRIPT}"></script>`;
}

function alert(problem: string | undefined): string {
  return problem === undefined ? '' : `\n<p role="alert">${escapeHtml(problem)}</p>`;
}

function requestField(to: SignInDestination | null): string {
  return to === null ? '' : `<input name="request" type="hidden" value="${escapeHtml(to.request)}">`;
}
