"""WebShop: find and buy the product that an instruction asks for."""

from longhaul_envs.registration import register

register("longhaul/WebShop-v0", "longhaul_envs.webshop.environment:WebShop")
