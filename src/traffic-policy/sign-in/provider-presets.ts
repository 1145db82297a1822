import { z } from 'zod';
import type { ProviderPlace, SignedInPerson } from './identity-provider.ts';

export interface ProviderPreset {
  readonly place: ProviderPlace;
  /** The first one is always asked for, the others when the policy names none. */
  readonly scopes: readonly string[];
}

/** The issuer of Google's accounts. */
export const GOOGLE = 'https://accounts.google.com';

const OPEN_ID = ['openid', 'profile', 'email'];

/** The providers that ngrok names. Each needs a client of the policy's author. */
export const PROVIDER_PRESETS = {
  amazon: {
    scopes: ['profile'],
    place: {
      issuer: 'https://www.amazon.com',
      oauth: {
        authorizationUrl: 'https://www.amazon.com/ap/oa',
        tokenUrl: 'https://api.amazon.com/auth/o2/token',
        userUrls: ['https://api.amazon.com/user/profile'],
        clientHeader: null,
      },
      person: (user) => userOf(user, 'user_id'),
    },
  },
  facebook: {
    scopes: ['email'],
    place: {
      issuer: 'https://www.facebook.com',
      oauth: {
        authorizationUrl: 'https://www.facebook.com/dialog/oauth',
        tokenUrl: 'https://graph.facebook.com/oauth/access_token',
        userUrls: ['https://graph.facebook.com/me?fields=id,name,email'],
        clientHeader: null,
      },
      person: (user) => userOf(user, 'id'),
    },
  },
  github: {
    scopes: ['user:email', 'read:user'],
    place: {
      issuer: 'https://github.com',
      oauth: {
        authorizationUrl: 'https://github.com/login/oauth/authorize',
        tokenUrl: 'https://github.com/login/oauth/access_token',
        userUrls: ['https://api.github.com/user', 'https://api.github.com/user/emails'],
        clientHeader: null,
      },
      person: (user, emails) => {
        const { id, login, name } = GitHubUser.parse(user);
        const primary = GitHubEmails.parse(emails).find((each) => each.primary && each.verified);
        return { subject: String(id), email: primary?.email ?? '', name: name ?? login };
      },
    },
  },
  gitlab: { scopes: OPEN_ID, place: { issuer: 'https://gitlab.com', person: personOf } },
  google: { scopes: OPEN_ID, place: { issuer: GOOGLE, person: personOf } },
  linkedin: {
    scopes: OPEN_ID,
    place: {
      issuer: 'https://www.linkedin.com/oauth',
      // Its tokens lack the nonce of OpenID Connect.
      oauth: {
        authorizationUrl: 'https://www.linkedin.com/oauth/v2/authorization',
        tokenUrl: 'https://www.linkedin.com/oauth/v2/accessToken',
        userUrls: ['https://api.linkedin.com/v2/userinfo'],
        clientHeader: null,
      },
      person: personOf,
    },
  },
  microsoft: {
    scopes: OPEN_ID,
    place: {
      issuer: 'https://login.microsoftonline.com/common/v2.0',
      person: (claims) => {
        // Administrators of any organisation write any email. They sign in with names of domains that are theirs.
        const { xms_edov: isVerified, preferred_username: username } = MicrosoftClaims.parse(claims);
        const email = username.includes('@') ? username : '';
        return { ...personOf(claims), ...(isVerified !== true && isVerified !== '1' && { email }) };
      },
    },
  },
  twitch: {
    scopes: ['user:read:email'],
    place: {
      issuer: 'https://id.twitch.tv/oauth2',
      oauth: {
        authorizationUrl: 'https://id.twitch.tv/oauth2/authorize',
        tokenUrl: 'https://id.twitch.tv/oauth2/token',
        userUrls: ['https://api.twitch.tv/helix/users'],
        clientHeader: 'client-id',
      },
      person: (users) => {
        const [{ id: subject, email, display_name: name }] = TwitchUsers.parse(users).data;
        return { subject, email, name };
      },
    },
  },
} as const satisfies Readonly<Record<string, ProviderPreset>>;

/** Providers send null for what they do not have, and Entra ID lists where a text belongs: as if it was not there. */
const optionalText = z.string().optional().catch(undefined);
const text = optionalText.transform((value = '') => value);

const GitHubUser = z.looseObject({ id: z.int(), login: z.string(), name: z.string().nullish() });
const GitHubEmails = z.array(z.looseObject({ email: z.string(), primary: z.boolean(), verified: z.boolean() }));
const MicrosoftClaims = z.looseObject({ xms_edov: z.unknown().optional(), preferred_username: text });
const TwitchUser = z.looseObject({ id: z.string(), email: text, display_name: text });
const TwitchUsers = z.looseObject({ data: z.tuple([TwitchUser], z.unknown()) });

/** @param subject the member that identifies a user */
function userOf(user: unknown, subject: string): SignedInPerson {
  const { email, name, ...rest } = z.looseObject({ email: text, name: text }).parse(user);
  return { subject: z.string().parse(rest[subject]), email, name };
}

/** How providers say that they have verified an email, in lower case. */
const VERIFIED: ReadonlySet<unknown> = new Set([true, 'true', 1, '1']);

const Claims = z.looseObject({
  sub: z.string(),
  email: text,
  email_verified: z.unknown().optional(),
  name: optionalText,
  preferred_username: text,
});

/**
 * Reads the claims of OpenID Connect. An email that the provider calls unverified is left out: anyone who registers there
 * could claim it, and policies decide by it.
 */
export function personOf(claims: unknown): SignedInPerson {
  const { sub, email, email_verified: said, name, preferred_username: username } = Claims.parse(claims);
  const isVerified = VERIFIED.has((typeof said === 'string' ? said.toLowerCase() : said) ?? true);
  return { subject: sub, email: isVerified ? email : '', name: name ?? username };
}
