declare module "core-js-pure/actual/url/index.js" {
  const Implementation: typeof URL;
  export = Implementation;
}
declare module "core-js-pure/actual/url-search-params/index.js" {
  const Implementation: typeof URLSearchParams;
  export = Implementation;
}
