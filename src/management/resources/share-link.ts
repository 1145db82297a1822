import { z } from 'zod';
import {
  ANNOTATIONS_ANSWER,
  annotations,
  body,
  COMMON_ANSWER,
  defineResource,
  listFilters,
  orNull,
  stateFilter,
  UTC,
} from './resource.ts';

/** The longest life of a link, in seconds. */
export const MAX_SHARE_S = 90 * 86_400;

export const ShareLinkCreate = body({
  ...annotations(),
  url: z
    .string()
    .max(1024)
    .describe(
      'The endpoint that it opens, such as `https://cam.example.com`; online, and its policy has the action gateway-share-links.',
    ),
  expires_in: z.int().min(1).max(MAX_SHARE_S).describe('Seconds until it ends, at most 90 days.'),
  max_uses: z.int().min(1).max(1_000_000).optional().describe('How many browsers can open it. Default: any number.'),
});
export type ShareLinkCreate = z.input<typeof ShareLinkCreate>;

export const ShareLink = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    url: z.string().describe('The endpoint that it opens.'),
    link: orNull(z.string()).describe('The link itself: only in the response to its creation, null afterwards.'),
    expires_at: z.string().describe(`When it ends. ${UTC}`),
    max_uses: orNull(z.int()).describe('How many browsers can open it; null: any number.'),
    uses: z.int().describe('How many browsers have opened it.'),
    last_used_at: orNull(z.string()).describe(`When a browser last opened it; null: never. ${UTC}`),
    created_by: z
      .string()
      .describe(
        "An API key, an authtoken (an agent that holds the endpoint), or `gateway` for a command on the gateway's machine.",
      ),
  })
  .describe('A link that lets browsers in at an endpoint.');
export type ShareLink = z.output<typeof ShareLink>;

export const ShareLinkFilters = listFilters(
  'id, hostname, description, metadata or who made it',
  ['url', 'expires_at', 'last_used_at', 'uses'],
  { state: stateFilter(['valid', 'expired', 'used_up'], 'Whether browsers can open it, or why not.') },
);
export type ShareLinkFilters = z.output<typeof ShareLinkFilters>;

export const shareLinks = defineResource({
  name: 'share link',
  path: '/share_links',
  idPrefix: 'sl_',
  answer: ShareLink,
  filters: ShareLinkFilters,
});

/** Where agents make, list and revoke links to endpoints of their own, on the host of the management API; needs no API key. */
export const AGENT_SHARE_LINKS_PATH = '/agent_share_links';
export const AGENT_SHARE_LINKS_LIST_PATH = `${AGENT_SHARE_LINKS_PATH}/list`;
export const AGENT_SHARE_LINKS_REVOKE_PATH = `${AGENT_SHARE_LINKS_PATH}/revoke`;

const authtoken = z.string().max(256);

/** Makes a link to an endpoint that the authtoken has online; answered with a {@link ShareLink}. */
export const AgentShareLinkCreate = ShareLinkCreate.extend({ authtoken });

/** Asks for the links to all endpoints that the authtoken has online. */
export const AgentShareLinkList = body({ authtoken });

export const AgentShareLinks = z.object({ share_links: z.array(ShareLink) });

/** Revokes one of them. */
export const AgentShareLinkRevoke = body({ authtoken, id: z.string().max(64) });
