import { github, gitlab, shopify, slack, stripe, svix, twilio } from './signatures.ts';
import { sns } from './sns.ts';
import type { Verify } from './webhook.ts';

const VERIFIERS: ReadonlyMap<string, Verify> = new Map([
  ['github', github],
  ['gitlab', gitlab],
  ['shopify', shopify],
  ['slack', slack],
  ['sns', sns],
  ['stripe', stripe],
  ['svix', svix],
  ['twilio', twilio],
]);

export const SUPPORTED_PROVIDERS: readonly string[] = [...VERIFIERS.keys()];

/** All providers in ngrok's documentation. */
const DOCUMENTED: ReadonlySet<string> = new Set(
  `aftership airship alchemy sns autodesk bitbucket bolt box brex buildkite calendly castle chargify circleci clearbit
  clerk coinbase contentful docusign dropbox facebook_graph_api facebook_messenger frameio github gitlab go1 heroku
  hostedhooks hubspot graphcms instagram intercom jira launch_darkly linear mailchimp mailgun microsoft_teams
  modern_treasury mongodb mux orb orbit pagerduty pinwheel plivo pusher sendgrid sentry shopify signal_sciences
  signalsciences slack sonatype sonatype_nexus square stripe svix terraform tiktok trendmicro_conformity twilio twitter
  typeform vmware vmware_workspace webex whatsapp worldline xero zendesk zoom`.split(/\s+/),
);

export function isKnownProvider(name: string): boolean {
  return DOCUMENTED.has(name);
}

/** @returns the verifier for a provider's webhooks; undefined when the provider is not supported */
export function verifierOf(name: string): Verify | undefined {
  return VERIFIERS.get(name);
}
